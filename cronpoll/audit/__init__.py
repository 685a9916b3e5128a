"""The judge: what is promised, and whether a record shows that it was kept. Shares no rule with the
scheduler."""
