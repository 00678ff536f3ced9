#!/usr/bin/env bash
# Predict, measure, calibrate, compare: unattended on one device, in one command of eight minutes at most.
#
#   benchmarks/device/campaign.sh [--total SECONDS] [--device cuda|cpu] [--size full|small] [--models A,B] [--hw NAME]
#
# Results go to $OUT (default ./out): blind.json (predictions made before anything was timed), kernels.csv, runs.yaml,
# skipped.csv, device.json, report.md, campaign.log, and rest.tar.gz (the plan, the fit, the comparisons).
# Needs Python with torch. Where a dependency of archsim is missing, carry its wheels: unpack them into one folder
# and name it in WHEELS (pydantic's core is compiled, so take the wheel of that Python and processor).
# A run that was cut off goes on where it ended when the command is given again with the same $OUT.
set -uo pipefail

total=480 device="" size="" models="" hw=""
while [ $# -gt 0 ]; do
  case "$1" in
    --total) total="${2%s}"; shift 2 ;;
    --device) device="$2"; shift 2 ;;
    --size) size="$2"; shift 2 ;;
    --models) models="$2"; shift 2 ;;
    --hw) hw="$2"; shift 2 ;;
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "campaign: unknown option $1" >&2; exit 2 ;;
  esac
done

started=$SECONDS
root="$(cd "$(dirname "$0")/../.." && pwd)"
out="${OUT:-out}"
mkdir -p "$out" || exit 2
out="$(cd "$out" && pwd)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
python="${PYTHON:-python3}"
export PYTHONPATH="$root${WHEELS:+:$WHEELS}${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
exec > >(tee -a "$out/campaign.log") 2>&1 3>&1

left() { echo $((total - (SECONDS - started))); }
say() { printf '\n== %s (%s s left)\n' "$1" "$(left)" >&3; }
# A step with a limit: what it may take, but never beyond the total. A step that fails does not end the campaign.
step() {
  local limit="$1" name="$2" rest; shift 2
  rest=$(left)
  [ "$rest" -lt "$limit" ] && limit=$rest
  if [ "$limit" -lt 3 ]; then say "$name: no time left"; return 1; fi
  say "$name"
  timeout -k 5 "$limit" "$@"
  local code=$?
  [ $code -ne 0 ] && echo "campaign: $name ended with code $code" >&3
  return $code
}

if ! "$python" -c 'import torch, yaml, pydantic, typer, numpy' 2>"$work/imports.txt"; then
  tail -n 1 "$work/imports.txt"
  echo "campaign: $python lacks a dependency; name a folder of unpacked wheels in WHEELS" >&2
  exit 2
fi
if [ -z "$device" ]; then
  device=$("$python" -c 'import torch; print("cuda" if torch.cuda.is_available() else "cpu")')
fi
[ -z "$size" ] && size=$([ "$device" = cuda ] && echo full || echo small)
[ -z "$models" ] && models=llama3-8b,gpt-oss-20b
common=(--device "$device" --size "$size" --models "$models" ${hw:+--hw "$hw"} --out "$out" --work "$work")
steps="$root/benchmarks/device/campaign.py"

# Arithmetic of the total: what follows the measurement keeps its share, the measurement gets the rest.
after=$((total / 6)); [ "$after" -gt 75 ] && after=75
before=$((total / 6)); [ "$before" -gt 60 ] && before=60

if [ -s "$out/blind.json" ]; then
  say "predictions were made before: blind.json is kept"
else
  step "$before" "predict, before anything is timed" "$python" "$steps" blind "${common[@]}" --budget "$total"
fi

tries=0
while [ $(($(left) - after)) -gt 5 ] && [ $tries -lt 4 ]; do
  budget=$(($(left) - after))
  tries=$((tries + 1))
  say "measure, try $tries"
  timeout -k 10 $((budget + 10)) "$python" -m archsim measure --suite all --device "$device" --size "$size" \
    --model "$models" ${hw:+--hw "$hw"} --budget "${budget}s" --out "$out" --json > "$work/measure-$tries.json"
  code=$?
  [ $code -ne 0 ] && echo "campaign: measure ended with code $code; what it had is kept"
  # Another try only where the process or the device was lost: it goes on behind the point that did it.
  if [ $code -eq 0 ] && ! grep -q "stopped answering" "$work/measure-$tries.json"; then break; fi
  [ $code -eq 2 ] && break
done

step 10 "split fitted from held-out rows" "$python" "$steps" split "${common[@]}"
if "$python" -m archsim calibrate --help > /dev/null 2>&1; then
  step 40 "calibrate on the fitted rows" "$python" -m archsim calibrate --from "$work/fit.csv" \
    --out "$work/after/hardware/calibration" --json > "$work/calibrate.json" ||
    { tail -c 600 "$work/calibrate.json"; echo "campaign: no calibration; the report goes without"; }
else
  echo "campaign: this archsim has no calibrate; the report goes without"
fi
step 25 "predict the held-out rows and the runs again" env ARCHSIM_PATH="$work/after" \
  "$python" "$steps" again "${common[@]}"
step 20 "report" "$python" "$steps" report "${common[@]}"
tar -czf "$out/rest.tar.gz" -C "$work" . && rm -f "$out/.running"
say "done in $((SECONDS - started)) s: $out"
test -s "$out/report.md"
