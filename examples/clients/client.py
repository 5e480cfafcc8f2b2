"""Sends one request, and retries it until it knows what became of it.

It acts once, however often it has to ask.
"""

import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

ATTEMPTS = 8

NO_ANSWER = (OSError, http.client.HTTPException)  # the second one is of an answer that was cut off
NO_OBJECT = (ValueError, AttributeError, RecursionError)  # of an answer that is no JSON, no object, or nested without end


class OutcomeUnknown(Exception):
    """Nobody can say what became of the request. Do not send it again under another key."""


def send(url, key, body):
    """Posts a body under a key until there is an answer to it."""
    doubt = False  # a try may have been executed
    for n in range(ATTEMPTS):
        headers = {}
        status = None
        try:
            status, headers, text = do("POST", url, key, body)
            kind = kind_of(text)
            if kind == "outcome-unknown":
                answer = ask(url, text)
                if answer:
                    return answer["status"], answer["body"] or ""
            elif kind != "in-progress" and status not in (425, 429, 502, 503, 504):
                return status, text
        except NO_ANSWER:
            pass  # no answer: the same request with the same key is safe
        doubt = doubt or status not in (425, 429)
        if not doubt and n == ATTEMPTS - 1:
            return status, text  # each try was refused
        pause(n, headers)
    raise OutcomeUnknown("the outcome is unknown")


def ask(url, problem):
    """Looks at the instance of a problem until it is known what became of the request.

    Returns its answer; None if the request is to be sent again, since that is not shown there, or nothing was done.
    """
    instance = json.loads(problem).get("instance")
    for n in range(ATTEMPTS if isinstance(instance, str) else 0):
        try:
            _, _, text = do("GET", urllib.parse.urljoin(url, instance))
            said = json.loads(text)
            if said.get("state") in ("done", "released"):
                return said.get("answer")
        except (*NO_ANSWER, *NO_OBJECT):
            pass  # asked again
        pause(n, {})
    raise OutcomeUnknown("the outcome is unknown")


def do(method, url, key=None, body=None):
    """Sends one request, and returns status, headers and text."""
    request = urllib.request.Request(url, method=method, data=body.encode() if body is not None else None)
    request.add_header("Authorization", "Bearer " + os.environ.get("API_TOKEN", ""))
    if key is not None:
        request.add_header("Content-Type", "application/json")
        request.add_header("Idempotency-Key", key)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, text_of(answer)
    except urllib.error.HTTPError as answer:
        return answer.code, answer.headers, text_of(answer)


def text_of(answer):
    """Returns the body as text, also one that is none: a gateway may answer in another encoding."""
    return answer.read().decode(errors="replace")


def kind_of(text):
    """Returns the last part of a problem's type; "" if text is none."""
    try:
        return json.loads(text).get("type", "").rsplit("/", 1)[-1]
    except NO_OBJECT:
        return ""


def pause(n, headers):
    """Waits before the next attempt: as long as the server asks, else longer and longer."""
    try:
        wait = float(headers.get("Retry-After"))
    except (TypeError, ValueError):
        wait = -1
    if not wait >= 0:  # also what is no number
        wait = 0.1 * 2**n
    time.sleep(min(wait, 10))


if __name__ == "__main__":
    try:
        print(*send(*sys.argv[1:4]))
    except OutcomeUnknown as unknown:
        print(unknown, file=sys.stderr)
        sys.exit(3)
