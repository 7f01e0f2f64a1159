"""For spark-submit: `spark-submit --master spark://host:7077 deploy/spark/run_pipeline.py [--drain]`."""

import sys

from weir.cli.main import main

main(["pipeline", "run", *sys.argv[1:]])
