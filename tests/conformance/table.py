"""All rows."""

from . import rows_archive, rows_exec, rows_fs, rows_sessions, rows_transport

TABLE = (*rows_transport.ROWS, *rows_sessions.ROWS, *rows_fs.ROWS, *rows_exec.ROWS,
         *rows_archive.ROWS)
