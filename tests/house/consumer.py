"""Installs dynapipe into a temporary place and builds a program against it, as a user would.

python3 consumer.py pkg-config|cmake|meson SOURCE_ROOT COMPILER...

`pkg-config` and `cmake` use the installed files, `meson` takes the source tree as a subproject. Exit status 77 (skipped)
where the tool is missing.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

PROGRAM = """\
#include <dynapipe/dynapipe.hpp>

int main() {
  return dynapipe::presets::gpt_6_7b().layers() == 32 ? 0 : 1;
}
"""

CMAKE = """\
cmake_minimum_required(VERSION 3.16)
project(consumer CXX)
find_package(dynapipe 99.0 QUIET CONFIG)
if(dynapipe_FOUND)
  message(FATAL_ERROR "dynapipe {version} took itself for 99.0")
endif()
find_package(dynapipe {version} REQUIRED CONFIG)
find_package(dynapipe REQUIRED CONFIG)
add_executable(program program.cpp)
target_link_libraries(program PRIVATE dynapipe::dynapipe)
"""

MESON = """\
project('consumer', 'cpp', default_options: ['cpp_std=c++20'])
executable('program', 'program.cpp', dependencies: dependency('dynapipe', fallback: 'dynapipe'))
"""


def run(*command):
    """Runs the command and returns what it prints; where it fails, prints that and ends the test."""
    print("$", *command, flush=True)
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}exit status {done.returncode}")
    return done.stdout


def installed(source, work):
    """The prefix that `source` is installed under."""
    prefix = work / "prefix"
    off = [f"-D{feature}=disabled" for feature in ("tests", "examples", "bench", "docs", "cuda")]
    run("meson", "setup", work / "build-dynapipe", source, f"--prefix={prefix}", *off)
    run("meson", "install", "-C", work / "build-dynapipe")
    return prefix


def with_pkg_config(source, work, compiler):
    os.environ["PKG_CONFIG_PATH"] = str(installed(source, work) / "share" / "pkgconfig")
    flags = run("pkg-config", "--cflags", "--libs", "dynapipe").split()
    run(*compiler, "-std=c++20", work / "program.cpp", *flags, "-o", work / "program")
    return work / "program"


def with_cmake(source, work, compiler):
    prefix = installed(source, work)
    version = run("meson", "introspect", work / "build-dynapipe", "--projectinfo")
    (work / "CMakeLists.txt").write_text(CMAKE.format(version=json.loads(version)["version"]))
    choose = [f"-DCMAKE_CXX_COMPILER={compiler[-1]}", f"-DCMAKE_PREFIX_PATH={prefix}"]
    run("cmake", "-G", "Ninja", "-S", work, "-B", work / "build", *choose)
    run("cmake", "--build", work / "build")
    return work / "build" / "program"


def with_meson(source, work, _):
    (work / "meson.build").write_text(MESON)
    (work / "subprojects").mkdir()
    (work / "subprojects" / "dynapipe").symlink_to(source, target_is_directory=True)
    run("meson", "setup", work / "build", work)
    run("meson", "compile", "-C", work / "build")
    return work / "build" / "program"


WAYS = {"pkg-config": with_pkg_config, "cmake": with_cmake, "meson": with_meson}


def main(way, source, *compiler):
    if shutil.which(way) is None:
        return 77
    # The flags of the build under test are not those of a user.
    for name in ("CPPFLAGS", "CXXFLAGS", "LDFLAGS", "DESTDIR"):
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        (work / "program.cpp").write_text(PROGRAM)
        run(WAYS[way](pathlib.Path(source).resolve(), work, list(compiler)))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
