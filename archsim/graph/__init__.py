"""Operations over tensors with named axes, and the passes that rewrite them."""
