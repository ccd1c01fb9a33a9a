"""What this machine can record: each link of the chain checked, with what a failing one costs and what fixes it.

`check` holds the values, `machine` the files read, `settings`, `pmus` and `software` the checks, `trial` a short
recording of this very process, `examination` puts them in order.
"""
