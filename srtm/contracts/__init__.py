"""Owns contracts of limits: their policies, their files, what a check says, and the reference of all decisions.

Pure but for ``contract_file`` and ``subject_plans``, which read files. May import ``topics`` (strict models) and
``token_bucket``. Begin with ``contract``; ``reference`` says what each policy means.
"""
