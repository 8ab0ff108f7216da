#!/usr/bin/env bash
# Checks and measures this project on the GPU of one machine: no network, nothing installed, a few minutes.
#
#   tools/gpu_check.sh [--budget SECONDS] [--out FILE]
#
# Runs in the folder that 'make gpu-check-kit' lays (build/gpu-check, copy it to the machine), or in a source tree that
# has such a folder or a .venv. Needs Python 3.11 to 3.13, a Vulkan loader and a driver. What it does, and its exit
# status, is described in tools/gpu_check.py; results are in FILE (default: gpu-check.json in that folder) at any moment.
set -u

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
CANNOT_RUN=2

say() { echo "gpu_check: $*" >&2; }

# Sets $python, and PYTHONPATH to the wheels unpacked for it where it lacks a package.
find_python() {
  local candidate tag wheels wheel
  for candidate in "$root/.venv/bin/python" "${PYTHON:-}" python3.12 python3.13 python3.11 python3; do
    command -v "$candidate" >/dev/null || continue
    tag=$("$candidate" -c 'import sys; print("cp%d%d" % sys.version_info[:2])') || continue
    if "$candidate" -c 'import numpy, pytest, wgpu' 2>/dev/null; then
      python=$candidate
      export PYTHONPATH=$root
      return 0
    fi
    for wheels in "$root/wheels" "$root/build/gpu-check/wheels"; do
      compgen -G "$wheels/numpy-*-$tag-*.whl" >/dev/null || continue
      for wheel in "$wheels"/*-"$tag"-*.whl "$wheels"/*-py3-none-*.whl; do
        "$candidate" -m zipfile -e "$wheel" "$temporary/site" || return 1
      done
      python=$candidate
      export PYTHONPATH=$root:$temporary/site
      return 0
    done
  done
  return 1
}

find_loader() {
  "$python" -c 'import ctypes; ctypes.CDLL("libvulkan.so.1")' 2>/dev/null && return 0
  for folder in "$root/lib" "$root/build/gpu-check/lib"; do
    if [ -e "$folder/libvulkan.so.1" ]; then
      export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
      say "this machine has no Vulkan loader (libvulkan.so.1); using the one beside this script"
      return 0
    fi
  done
  return 1
}

# Driver descriptions that the loader may not look at by itself, one a line: files, and some for NVIDIA's libraries.
driver_files() {
  local folder file library
  for folder in /etc /usr/share /usr/local/share /usr/local/nvidia/share /run/opengl-driver/share; do
    for file in "$folder"/vulkan/icd.d/*nvidia*.json; do [ -e "$file" ] && echo "$file"; done
  done
  for library in libGLX_nvidia.so.0 libEGL_nvidia.so.0; do
    file=$(ldconfig -p 2>/dev/null | awk -v name="$library" '$1 == name { print $NF; exit }')
    for file in $file /usr/local/nvidia/lib64/"$library" /usr/lib64/"$library" /usr/lib/x86_64-linux-gnu/"$library"; do
      [ -e "$file" ] || continue
      printf '{"file_format_version": "1.0.0", "ICD": {"library_path": "%s", "api_version": "1.3.0"}}\n' "$file" \
        >"$temporary/$library.json"
      echo "$temporary/$library.json"
      break
    done
  done
}

# Leaves the environment with the first set of drivers that has a GPU, else as it was.
find_driver() {
  local probe=("$python" -P -m tools.gpu_check probe) found file
  found=$(timeout 60 "${probe[@]}" 2>&1) && { say "$found"; return 0; }
  if [ -z "${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-}" ]; then
    for file in $(driver_files); do
      # The first name is that of today, the second what loaders before 1.3.207 know.
      found=$(VK_DRIVER_FILES=$file VK_ICD_FILENAMES=$file timeout 60 "${probe[@]}" 2>&1) || continue
      export VK_DRIVER_FILES=$file VK_ICD_FILENAMES=$file
      say "$found, with the driver of $file"
      return 0
    done
  fi
  say "$found"
  say "no GPU was found. If this machine has one, set VK_DRIVER_FILES (VK_ICD_FILENAMES for old loaders) to its" \
      "driver's JSON file, such as /usr/share/vulkan/icd.d/nvidia_icd.json; a container also needs the driver's" \
      "graphics libraries (NVIDIA_DRIVER_CAPABILITIES=graphics,compute,utility)"
}

[ "${BASH_SOURCE[0]}" = "$0" ] || return 0  # sourced, for the functions

cannot() { say "$*"; exit $CANNOT_RUN; }
find_python || cannot "Python 3.11 to 3.13 is needed, with the wheels of 'make gpu-check-kit' beside this folder"
find_loader || cannot "there is no Vulkan loader (libvulkan.so.1) here; install it (libvulkan1)"
find_driver
"$python" -P -m tools.gpu_check all "$@"
