"""Take an Nsight or PyTorch profile into the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import streamlit as st

from dashboard.data.captures import HASH_LETTERS
from dashboard.data.import_file import allowed_file, import_root, import_upload, imports_dir
from dashboard.data.plain_text import plain
from dashboard.panels.errors import show_bad_input
from profiles.errors import StorageError, UnreadableProfile
from profiles.nsight import write_import
from profiles.nsight.reading import Progress
from profiles.store import RunFolder
from tuner.errors import BadInput

_ACCEPTED = (
    "Nsight Systems .sqlite, .nsys-rep or `nsys stats` output; Nsight Compute CSV or .ncu-rep; "
    "PyTorch trace (.json, .json.gz). The content decides, not the suffix."
)


def import_form(run: RunFolder) -> None:
    """Draw the form. An imported profile is chosen in the address, where the page finds it."""
    with st.form("import_profile", border=True):
        left, right = st.columns(2, gap="large")
        upload = left.file_uploader("Upload a profile", help=_ACCEPTED)
        path = right.text_input(
            "or name a file on this host",
            placeholder="capture.sqlite",
            help=f"Below {import_root()}; for files that are too large to upload.",
        )
        pressed = right.form_submit_button("Import", icon=":material/upload_file:", type="primary")
    if not pressed:
        return
    if upload is not None:
        _take(lambda progress: import_upload(run, upload.name, upload.getvalue(), progress))
    elif path.strip():
        _take(lambda progress: write_import(imports_dir(run), allowed_file(path), progress))
    else:
        st.error("Nothing to import: upload a file or name one.", icon=":material/error:")


def _take(read: Callable[[Progress], Path]) -> None:
    bar = st.progress(0.0, text="reading")

    def show(what: str, share: float) -> None:
        bar.progress(min(1.0, share), text=plain(what))

    try:
        folder = read(show)
    except UnreadableProfile as error:
        _refuse(error.path.name, f"{error.reason}. {error.remedy}")
    except StorageError as error:
        _refuse(error.path.name, f"{error.reason}. {error.remedy}")
    except BadInput as error:
        show_bad_input(error)
    else:
        st.query_params["profile"] = folder.name[:HASH_LETTERS]
        st.toast("Imported.", icon=":material/check_circle:")
    finally:
        bar.empty()


def _refuse(name: str, why: str) -> None:
    st.error(f"**{plain(name)}** was not imported: {plain(why)}", icon=":material/error:")
