#!/usr/bin/env bash
# From a machine with only Python to a scored language model: installs, trains a small model, measures it.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
set_up quickstart
.venv/bin/python scripts/train_quickstart_model.py configs/quickstart.yaml runs/quickstart-model
.venv/bin/condvne gap configs/quickstart.yaml --folder runs/quickstart
