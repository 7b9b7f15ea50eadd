"""Settings of services from a file and the environment, beside their flags.

Begin with ``service_file``. Imports nothing but the foundation: a broker reads its settings before anything else.
"""
