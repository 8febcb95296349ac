#!/usr/bin/env bash
# Installs into .venv what the tests need, then runs all of them. Arguments go to pytest.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
set_up quickstart,dev
export HF_HUB_OFFLINE=1 # the tests need no hub, and must not wait for one
# Matrices of tests are small: several threads would only wait for each other, four times as long on a busy machine.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
.venv/bin/python -m pytest --numprocesses auto --dist worksteal "$@"
