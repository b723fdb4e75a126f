"""`infercast launch`: the command, or a file, that starts a deployment with exactly the settings of its prediction."""

import re
from pathlib import Path
from typing import Annotated

import typer

from simulator.cli.options.deployment_options import DeploymentOptions, grouped
from simulator.cli.output import put
from simulator.cli.text_layout import Command, columns, wrapped
from simulator.deployment.deployment import Deployment
from simulator.deployment.launch_command import launch_command
from simulator.deployment.launch_files import KINDS, Launch, launch_file
from simulator.deployment.launch_several_hosts import note_of_hosts
from simulator.errors import InfercastError
from simulator.files import write_whole
from simulator.models.model import checkpoint

COMMAND = "command"


@grouped
def command(
    asked: DeploymentOptions,
    kind: Annotated[
        str, typer.Option("--as", metavar="KIND", help=f"What to print: {', '.join((COMMAND, *KINDS))}.")
    ] = COMMAND,
    replicas: Annotated[int, typer.Option("--replicas", min=1, help="Replicas that the file starts.")] = 1,
    image: Annotated[
        str, typer.Option("--image", metavar="NAME:TAG", help="Container image.", show_default="the engine's official")
    ] = "",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write to a file instead of stdout.")
    ] = None,
) -> None:
    """Print what starts a deployment: its command, or a file for Docker Compose, Kubernetes, llm-d or Dynamo.

    The flags are those that the prediction rests on. A file is YAML on stdout, for `kubectl apply -f -`; nodes with the
    right device are yours to select. Give the options that compare, tune or simulate were given.
    """
    if kind == COMMAND and (replicas > 1 or image):
        given = f"--replicas {replicas}" if replicas > 1 else f"--image {image}"
        raise InfercastError(f"{given} without --as", "it would change nothing", f"Give --as {', '.join(KINDS)}")
    asked.choices()  # first: it opens the user's own profiles
    deployment = asked.deployment()
    repository = _repository(asked.model, deployment)
    if kind == COMMAND:
        note = note_of_hosts(deployment)
        lines = [f"# {each}" for each in wrapped(note, columns() - 2)] if note else []
        lines += wrapped(Command(launch_command(deployment, repository)), columns())
        text = "\n".join(lines) + "\n"
    else:
        text = launch_file(Launch(deployment, replicas, image, repository), kind)
    if out is None:
        put(text)
    else:
        write_whole(out, text, "--out")


def _repository(typed: str, deployment: Deployment) -> str:
    """Return the repository that was typed as the model, where it holds the weights' format; "" for other names."""
    name = typed.removeprefix("https://huggingface.co/").rstrip("/")
    if not re.fullmatch(r"\w[\w.-]*/[\w.-]+", name) or name.endswith((".yaml", ".yml")):
        return ""
    model, stored = checkpoint(name)
    return name if model.checkpoint_format(stored or model.weight_dtype) == deployment.layout.weight_dtype else ""
