"""Who may use the API and the dashboard: tokens, JWTs, tenants, and the record of what they changed."""
