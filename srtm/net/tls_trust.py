"""TLS to the control plane: which certificates are trusted, and how a failure is explained to people."""

from __future__ import annotations

import os
import ssl
from functools import cache
from urllib.parse import urlsplit

from srtm.errors import BadInput

CA_VARIABLE = "SRTM_CA_FILE"

_EXPIRED, _NOT_YET = 10, 9  # X509_V_ERR_* of OpenSSL; Python has no names for them
_UNKNOWN_ISSUER = (18, 19, 20, 21)
_OTHER_NAME = (62, 64)
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE")


def ca_file(given: str | None = None) -> str | None:
    """Return ``given``, else $SRTM_CA_FILE, else None (the system's certificates)."""
    return given or os.environ.get(CA_VARIABLE) or None


@cache
def trusting(ca_file: str | None) -> ssl.SSLContext:
    """Return a client's TLS context; None: trust the system's certificates. Raises BadInput.

    The process shares one context: reading the system's certificates takes 20 ms, and there may be a thousand clients.
    """
    return new_trust(ca_file)


def new_trust(ca_file: str | None) -> ssl.SSLContext:
    """The same, for the caller alone, who may change it. Raises BadInput if the file holds no certificates."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:
        raise BadInput("ca_file", ca_file, f"must hold certificates in PEM ({error.reason or error})") from None
    except OSError as error:
        raise BadInput("ca_file", ca_file, f"must be a file that can be read ({error.strerror})") from None


def renew_trust(ca_file: str) -> None:
    """Trust what the file holds now as well; what is gone from it stays trusted. Raises BadInput."""
    new_trust(ca_file)  # a bad file changes nothing
    trusting(ca_file).load_verify_locations(ca_file)


def trouble(url: str, error: BaseException, remedy: str = "") -> str:
    """Explain to people why ``url`` cannot be reached. ``remedy`` follows if nobody trusted issued its certificate."""
    for cause in _chain(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _distrust(url, cause, remedy)
        if isinstance(cause, ssl.SSLError) and cause.reason in _NO_TLS:
            return f"does not speak TLS: should it be {urlsplit(url).scheme.removesuffix('s')}://?"
    told = next((cause for cause in _chain(error) if _is_timeout(cause) or str(cause)), None)
    if told is not None and _is_timeout(told):
        return "gives no answer in time"
    return f"cannot be reached: {told or type(error).__name__}"


def _is_timeout(cause: BaseException) -> bool:
    """Whether time is up. Such an error's own text only names the cancellation, or nothing.

    ``TooSlowError`` is trio's, known by its name: the client library runs without trio too.
    """
    return (isinstance(cause, TimeoutError) and cause.errno is None) or type(cause).__name__ == "TooSlowError"


def no_answer(url: str) -> str:
    """Explain that ``url`` closed the connection before it answered."""
    hint = ": should it be https://?" if url.startswith("http:") else ""
    return f"closed the connection without an answer{hint}"


def _distrust(url: str, error: ssl.SSLCertVerificationError, remedy: str) -> str:
    if error.verify_code == _EXPIRED:
        return "its certificate has expired"
    if error.verify_code == _NOT_YET:
        return "its certificate is not valid yet"
    if error.verify_code in _UNKNOWN_ISSUER:
        return f"its certificate is from nobody who is trusted here{remedy}"
    if error.verify_code in _OTHER_NAME:
        return f"its certificate is not for {urlsplit(url).hostname}"
    return f"its certificate is refused: {error.verify_message}"


def _chain(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in found:
        found.append(cause)
        cause = cause.__cause__ or cause.__context__
    return found
