"""The SQL store: tables, migrations, and the cluster state as rows.

May import: model, srtm. Begin with ``store`` (how it is changed), then ``cluster_rows`` (what is in it).
"""
