"""`--help` of a command: options in groups, the usual ones first, and two examples that the tests run."""

from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from typer import BadParameter
from typer.core import TyperCommand

from simulator.cli.examples import EXAMPLES
from simulator.errors import InfercastError
from simulator.questions.words import example

RUNNING: ContextVar[str] = ContextVar("RUNNING", default="")  # the command that runs, for its json
INTERRUPTED = 130  # exit code after Ctrl-C, as shells give it
OWN = "Options"  # those that are in no other group
GROUPS = {  # by the first flag of an option
    "Model, devices, engine": (
        "--model --hardware --engine --engine-version --devices --tp --pp --ep --dp --weight-dtype --cache-dtype"
    ),
    "Load and SLO": (
        "--workload --request-rate --rate --max-concurrency --input-len --output-len --batch --context-len --slo "
        "--slo-share --within-slo --num-prompts --trace --trace-columns --rate-curve --random-range-ratio --client "
        "--burstiness --release-period --prefix-len --num-prefixes --num-dataset-entries --dataset-sampling-strategy "
        "--warmup-request-count --whole-run --seed"
    ),
    OWN: "",
    "Clients": (
        "--network --streaming --timeout --max-retries --retry-delay --turns --think-time --thinking-tokens --duration"
    ),
    "Prices": (
        "--price --provider --region --price-date --usd-per-hour --instance-devices --vs-api --interrupted-per-month "
        "--replaced-after --availability"
    ),
    "Owned machines, energy": (
        "--purchase-usd --lifetime-years --staff-usd-per-month --colocation --site --pue --usd-per-kwh --grid-g-per-kwh"
    ),
    "Engine settings": (
        "--max-num-seqs --max-num-batched-tokens --max-model-len --gpu-memory-utilization --num-gpu-blocks-override "
        "--set"
    ),
    "Drafts, offloading": (
        "--speculative-model --num-speculative-tokens --acceptance-rate --cpu-offload-gb --gpu-layers "
        "--kv-offloading-size --host"
    ),
    "Sweeps": "--jobs --executor --store",
    "Output": (
        "--format --explain --details --sensitivity --fitted --interval --plot --timeline --trace-out --save-result "
        "--profiles --help"
    ),
}


class GroupedCommand(TyperCommand):
    """A command whose help has its options under headings, in the order of GROUPS, and ends in examples."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of a command. Raises InfercastError for what is no number, or out of an option's range."""
        try:
            return super().parse_args(ctx, args)
        except BadParameter as error:
            if found := _in_three_parts(error, ctx.info_name):
                raise found from None
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command, under its name."""
        before = RUNNING.set(ctx.info_name or "")
        try:
            return super().invoke(ctx)
        finally:
            RUNNING.reset(before)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options, group by group."""
        for heading, parameters in _sections(self.get_params(ctx)):
            records = [each.get_help_record(ctx) for each in parameters]
            if shown := [each for each in records if each is not None]:
                with formatter.section(heading):
                    formatter.write_dl(shown)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, each as it is typed: a backslash ends a line that goes on."""
        formatter.write("\nExamples:\n")
        for line in EXAMPLES[ctx.info_name]:
            formatter.write("".join(f"  {each}\n" for each in line.splitlines()))


def _in_three_parts(error: BadParameter, command: str | None) -> InfercastError | None:
    """Return typer's error about the value of a parameter as ours; None where it is no number."""
    param, errors = error.param, getattr(error.__cause__, "errors", None)  # of pydantic, which newer typers read with
    if param is None or not error.message or "is not one of" in error.message:
        return None
    name = f"{command}" if param.param_type_name == "argument" else param.opts[0]
    if errors is None:
        return InfercastError(name, error.message, "Correct it")
    [found, *_] = errors()
    text, kind = str(found["input"]), found["type"]
    if kind.startswith("int_"):
        return InfercastError(f"{name} {text}", "it is not a whole number", example(text, name))
    if kind.startswith("float_"):
        return InfercastError(f"{name} {text}", "it is not a number", "Write it in digits, as 0.5, 1500 or 1.5e12")
    return InfercastError(f"{name} {text}", found["msg"].replace("Input", "it", 1), "Correct it")


def _sections(parameters: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    yield "Arguments", [each for each in parameters if each.param_type_name == "argument"]
    options = {each.opts[0]: each for each in parameters if each.param_type_name == "option"}
    grouped = {flag for flags in GROUPS.values() for flag in flags.split()}
    for heading, flags in GROUPS.items():
        own = [each for flag, each in options.items() if flag not in grouped]
        yield heading, own if heading == OWN else [options[each] for each in flags.split() if each in options]
