"""Running a scenario against the host, and what its answers say."""

import asyncio


def run(scenario):
    return asyncio.run(scenario)


def metadata(answer):
    return {key.removeprefix("llamadart.webgpu."): value for key, value in answer["state"]["metadata"].items()}


def notes(answer):
    return metadata(answer)["runtime_notes"].split(";")
