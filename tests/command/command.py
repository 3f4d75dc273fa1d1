"""What the tests of the command line share: a folder of their own, runs of the program, and a list of failures."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

LENGTHS = "task,input_tokens,target_tokens\nqa,100,20\nqa,300,1\ndoc,700,0\nsum,512,64\nqa,9,3\nsum,250,50\n"
ROWS = 6


class Session:
    """Runs `dynapipe` in a temporary folder, which holds `lengths.csv`, and collects failures."""

    def __init__(self, arguments):
        if len(arguments) != 3:
            sys.exit("usage: python3 %s PATH_TO_dynapipe SOURCE_DIR" % arguments[0])
        self.program = os.path.abspath(arguments[1])
        self.source = pathlib.Path(arguments[2]).resolve()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dynapipe-command-"))
        self.failures = []
        self.checks = 0
        self.write("lengths.csv", LENGTHS)

    def write(self, name, data):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return name

    def read(self, name):
        return (self.folder / name).read_bytes()

    def files(self):
        """Every file of the session's folder with what it holds."""
        return {str(path.relative_to(self.folder)): path.read_bytes()
                for path in sorted(self.folder.rglob("*")) if path.is_file()}

    def run(self, *words, timeout=300, **options):
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        return subprocess.run([self.program, *map(str, words)], cwd=self.folder, stdin=subprocess.DEVNULL,
                              timeout=timeout, **options)

    def plan(self, *words, lengths="lengths.csv", model="gpt-3.35b", cluster="a100-80g", **options):
        return self.run("plan", "--lengths", lengths, "--model", model, "--cluster", cluster, *words, **options)

    def check(self, condition, *what):
        self.checks += 1
        if not condition:
            self.failures.append(" ".join(map(str, what)))
        return bool(condition)

    def succeeded(self, done, *what):
        shown = [(stream or b"").decode(errors="replace")[:400] for stream in (done.stderr, done.stdout)]
        return self.check(done.returncode == 0 and not done.stderr, *what, "exits", done.returncode, *shown)

    def refused(self, done, words, *what):
        """Exit status 2, nothing on stdout, and one line on stderr that has all the words."""
        error = done.stderr.decode(errors="replace")
        shown = error[:400]
        if not self.check(done.returncode == 2, *what, "exits", done.returncode, shown):
            return
        self.check(not done.stdout, *what, "prints", (done.stdout or b"")[:200])
        self.check(error.endswith("\n") and error.count("\n") == 1, *what, "says not one line:", repr(shown))
        self.check(error.startswith("dynapipe: "), *what, "does not say who speaks:", repr(shown))
        for word in words:
            self.check(word in error, *what, "does not name", repr(word) + ":", repr(shown))

    def close(self):
        shutil.rmtree(self.folder)
        for failure in self.failures[:60]:
            print("FAILED:", failure)
        if len(self.failures) > 60:
            print("... and %d more" % (len(self.failures) - 60))
        print("%d checks, %d failed" % (self.checks, len(self.failures)))
        sys.exit(1 if self.failures else 0)
