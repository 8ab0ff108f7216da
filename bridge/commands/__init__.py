"""The commands of ``python -m bridge``: each module has ``add_arguments(parser)`` and ``run(arguments)``, its docstring is its help."""
