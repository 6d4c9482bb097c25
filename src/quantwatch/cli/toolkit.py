"""`quantwatch toolkit`: why a quantized model is bad, and what cures it. Works on model files, offline."""

import typer

from quantwatch.cli import (
    toolkit_checkpoint,
    toolkit_diagnose,
    toolkit_export,
    toolkit_growth,
    toolkit_observers,
    toolkit_outliers,
    toolkit_quantize,
    toolkit_smooth,
)

app = typer.Typer(
    help="Explain and cure quantization damage on model files, offline. Needs: pip install 'quantwatch\\[toolkit]'",
    no_args_is_help=True,
)
app.command("outliers")(toolkit_outliers.command)
app.command("check-checkpoint")(toolkit_checkpoint.command)
app.command("observers")(toolkit_observers.command)
app.command("smooth")(toolkit_smooth.command)
app.command("quantize")(toolkit_quantize.command)
app.command("growth")(toolkit_growth.command)
app.command("export")(toolkit_export.command)
app.command("diagnose")(toolkit_diagnose.command)
