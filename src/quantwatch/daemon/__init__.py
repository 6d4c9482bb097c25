"""The process: listeners, timetable, signals, reload, shutdown."""
