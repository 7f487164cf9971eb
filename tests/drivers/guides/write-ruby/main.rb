# Calls the functions of docs/guide/write/ruby.md, each for an order of its own.

require_relative "with_pg"
require_relative "with_sequel"
require_relative "with_active_record"

BYTES = "\x00\x01\xff".b

connection = PG.connect(ENV.fetch("DATABASE_URL"))
puts "json 1 #{pay(connection, 1)}"
puts "bytes 2 #{pay_in_bytes(connection, 2, BYTES)}"

database = Sequel.connect(ENV.fetch("DATABASE_URL"))
puts "json 3 #{pay_with_sequel(database, 3)}"
puts "bytes 4 #{pay_in_bytes_with_sequel(database, 4, BYTES)}"

ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE_URL"))
puts "json 5 #{pay_with_active_record(5)}"
puts "bytes 6 #{pay_in_bytes_with_active_record(6, BYTES)}"
