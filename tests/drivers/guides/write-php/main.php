<?php
/* Calls the functions of docs/guide/write/php.md, each for an order of its own. */

error_reporting(E_ALL);
set_error_handler(fn($number, $message) => throw new ErrorException($message));
require 'outbox.php';

$pdo = connect('pgsql:host=' . getenv('PGHOST') . ';port=' . getenv('PGPORT') . ';dbname=' . getenv('PGDATABASE'),
	getenv('PGUSER'));
echo 'json 1 ', pay($pdo, 1), "\n";
echo 'bytes 2 ', pay_in_bytes($pdo, 2, "\x00\x01\xff"), "\n";
