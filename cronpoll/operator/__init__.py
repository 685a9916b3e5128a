"""`kron-operator`: KronJobs in Kubernetes, on the same decisions as the daemon. `fields` and
`kronjob` are what a user writes, `ledger` what is remembered in its status, `decision` what follows
from both. All of that is pure; `controller` and the files around it meet an API server."""
