"""Train a recurrent drafter for a base model and measure it.

`generate` lets the base model write its own training data, `train` distils it into a drafter,
`evaluate` says what the drafter is worth: acceptance by beam width, draft length and category.
"""
