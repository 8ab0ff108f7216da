"""The commands of ``python -m bridge``.

Each module has ``add_arguments(parser)`` and ``run(arguments)``; its docstring is its help text.
"""
