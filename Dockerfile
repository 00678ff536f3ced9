FROM python:3.11-slim
RUN useradd --create-home --uid 1000 archsim
COPY . /src
RUN pip install --no-cache-dir '/src[ui]' && rm -rf /src
USER archsim
WORKDIR /srv
ENV PYTHONUNBUFFERED=1 XDG_CACHE_HOME=/cache
EXPOSE 7860
CMD ["archsim", "ui", "--public", "--host", "0.0.0.0", "--port", "7860", "--proxies", "1"]
