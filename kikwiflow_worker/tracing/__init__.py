"""Traces: which step led to which, across workers, people and programs.

``protocol`` is what everything else uses, and costs nothing while traces are off; ``otel`` is the only module that knows
OpenTelemetry (the extra ``otel``), ``export`` decides where spans go.
"""
