#!/usr/bin/env bash
# Handwritten digits, real and generated, compared under their classes and under captions; no hub, no GPU.
# With the small diffusion pipeline in runs/tiny-sdxl (or the folder given as first argument), its images take part.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
set_up quickstart
.venv/bin/python scripts/make_digit_groups.py runs/digits --pipeline "${1:-runs/tiny-sdxl}"
.venv/bin/condvne images configs/digits-images.yaml
.venv/bin/condvne images configs/digits-captions.yaml
