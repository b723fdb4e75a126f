"""Which engines run on which devices, and in which formats."""

from simulator.deployment.weight_files import refuse_unreadable
from simulator.engines.engine import load_engine
from simulator.errors import NotModelledError
from simulator.hardware.hardware import Hardware


def runs_on(engine: str, hardware: Hardware) -> bool:
    try:
        load_engine(engine).platform(hardware)
    except NotModelledError:
        return False
    return True


def reads(engine: str, hardware: Hardware, stored: str) -> bool:
    platform = load_engine(engine).platform(hardware)
    try:
        refuse_unreadable(stored, load_engine(engine))
    except NotModelledError:
        return False
    return platform is None or stored not in platform.lacks
