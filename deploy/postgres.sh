#!/bin/sh
# Runs once, when the database is created: adds a role that is subject to row-level security.
set -eu
psql --username postgres --set ON_ERROR_STOP=1 --set password="$POSTGRES_PASSWORD" <<'SQL'
CREATE ROLE recollect LOGIN PASSWORD :'password';
CREATE DATABASE recollect OWNER recollect TEMPLATE template0 ENCODING 'UTF8';
\connect recollect
CREATE EXTENSION IF NOT EXISTS vector;
SQL
