"""Downloads Debian packages and unpacks them into a folder, without installing them.

Works as root and as any user. If the system's package lists are empty, private lists are fetched into the same folder, so
the system does not change.
"""

import os
import shutil
import subprocess
from pathlib import Path


class NoPackageSource(Exception):
    """No Debian package source can be used; the text says why."""


def _apt_get(arguments, folder, options=()):
    command = ["apt-get", "-q", "-o", "Acquire::http::Timeout=20", "-o", "Acquire::https::Timeout=20", "-o", "Acquire::Retries=1"]
    if os.geteuid() == 0:
        command += ["-o", "APT::Sandbox::User=root"]  # otherwise apt warns that its own user cannot write here
    try:
        done = subprocess.run(
            [*command, *options, *arguments], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180
        )
    except subprocess.TimeoutExpired:
        raise NoPackageSource("the package source does not answer") from None
    return done.returncode == 0


def _downloaded(package, folder):
    return next(iter(sorted(folder.glob(f"{package}_*.deb"))), None)


def download(packages, folder):
    """Leaves one .deb a package in `folder`; returns {package: path}. Packages that are there already are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [package for package in packages if not _downloaded(package, folder)]
    if wanted:
        for tool in ("apt-get", "dpkg", "dpkg-deb"):
            if not shutil.which(tool):
                raise NoPackageSource(f"this machine has no {tool}")
        if not _apt_get(["download", *wanted], folder):
            private = folder / "apt"
            (private / "lists" / "partial").mkdir(parents=True, exist_ok=True)
            (private / "cache" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
            options = ["-o", f"Dir::State::lists={private}/lists", "-o", f"Dir::Cache={private}/cache"]
            try:
                if not (_apt_get(["update"], folder, options) and _apt_get(["download", *wanted], folder, options)):
                    raise NoPackageSource(f"no package source of this machine offers {', '.join(wanted)}")
            finally:
                shutil.rmtree(private, ignore_errors=True)
    return {package: _downloaded(package, folder) for package in packages}


def unpack(files, folder):
    """Replaces `folder` by the content of the packages in `files`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in files.values():
        subprocess.run(["dpkg", "-x", file, folder], check=True)


def version(file: Path):
    return subprocess.run(["dpkg-deb", "-f", file, "Version"], check=True, capture_output=True, text=True).stdout.strip()
