"""One chart a file: plain data (the info), what collects it, and the figure that draws it."""
