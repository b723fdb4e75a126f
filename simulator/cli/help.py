"""`--help` of a command: options in groups, the usual ones first, and two examples that the tests run."""

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from typer.core import TyperCommand, TyperGroup

from simulator.cli.examples import EXAMPLES
from simulator.cli.usage import UsageError, in_three_parts, no_such_command

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
        "--burstiness --balanced --release-period --prefix-len --num-prefixes --num-dataset-entries "
        "--dataset-sampling-strategy --warmup-request-count --whole-run --seed"
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
        """Read the words of a command. Raises InfercastError for options and values that it does not have."""
        return _parsed(super().parse_args, self, ctx, args)

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


class Commands(TyperGroup):
    """All commands; a word that is none of them, or no option of theirs, is an error in three parts."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words before a command. Raises InfercastError for an option that there is not."""
        return _parsed(super().parse_args, self, ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is called. Raises InfercastError for a name that none has."""
        if args[0] not in self.commands and not ctx.resilient_parsing:
            raise no_such_command(args[0], self.commands)
        return super().resolve_command(ctx, args)


def _parsed(parse: Callable[[Any, list[str]], list[str]], command: Any, ctx: Any, args: list[str]) -> list[str]:
    words = list(args)  # typer takes them out one by one
    try:
        return parse(ctx, args)
    except UsageError as error:
        if found := in_three_parts(error, command, words):
            raise found from None
        raise


def _sections(parameters: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    yield "Arguments", [each for each in parameters if each.param_type_name == "argument"]
    options = {each.opts[0]: each for each in parameters if each.param_type_name == "option"}
    grouped = {flag for flags in GROUPS.values() for flag in flags.split()}
    for heading, flags in GROUPS.items():
        own = [each for flag, each in options.items() if flag not in grouped]
        yield heading, own if heading == OWN else [options[each] for each in flags.split() if each in options]
