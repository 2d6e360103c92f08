"""Train a drafter for a base model and measure it.

`generate` lets the base model write its own training data, `train` distils it into a `trainee` of
any kind (a recurrent one in the stages of `curriculum`), watched on `held_out` prompts, resumable
from a `checkpoint`, and ends with a `verdict`. `evaluate` says what a drafter is worth: acceptance
by beam width, draft length and category.
"""
