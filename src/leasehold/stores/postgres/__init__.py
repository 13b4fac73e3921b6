"""PostgreSQL, through psycopg 3 and its pool."""
