-- Nothing: on PostgreSQL history lies in the order in which it is written from the beginning. The number goes with SQLite's.
SELECT 1;
