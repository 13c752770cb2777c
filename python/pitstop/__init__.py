"""pitstop: an asynchronous training checkpointer."""
