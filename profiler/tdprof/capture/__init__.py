"""The capture: a folder of Parquet tables and one JSON file; its schema, writer and reader."""
