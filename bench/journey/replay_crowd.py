"""`python -m bench.journey.replay_crowd`: the simulator's fans, who come when those of the replayed sale came."""

import argparse
import json
import random
from pathlib import Path

from bench.journey.arrivals import moments
from onsale.cli.context import run_async
from onsale.simulate.command import Crowd
from onsale.simulate.observations import Profile

DETERMINED = Profile(methods={"ok": 1}, leaves_line=0, leaves_hold=0, repeats_hold=0, page={"pay": 1})


class ReplayCrowd(Crowd):
    """Fan n comes at the moment n of the sale, and buys if there is a ticket left."""

    connections_max = 4_096  # so that no fan waits for another's

    def __init__(self, url: str, event_id: str, *, times: int) -> None:
        self._moments = moments(times)
        super().__init__(
            url, event_id, fans=len(self._moments), arrive_over_s=0, seed=1, streams=100, profile=DETERMINED
        )

    def arrives_after_s(self, number: int, rng: random.Random) -> float:
        return self._moments[number]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.journey.replay_crowd", description=__doc__)
    for name, kind in (("--url", str), ("--event-id", str), ("--times", int), ("--json", Path)):
        parser.add_argument(name, type=kind, required=True)
    given = parser.parse_args()
    crowd = ReplayCrowd(given.url, given.event_id, times=given.times)
    run_async(crowd.run(lambda _: None))
    given.json.write_text(json.dumps(crowd.result()))


if __name__ == "__main__":
    main()
