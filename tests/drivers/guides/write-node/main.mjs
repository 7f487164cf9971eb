// Calls the functions of docs/guide/write/node.md, each for an order of its own.

import createKnex from "knex";
import pg from "pg";
import postgres from "postgres";
import { Sequelize } from "sequelize";
import { DataSource } from "typeorm";

import * as withKnex from "./with_knex.mjs";
import * as withPg from "./with_pg.mjs";
import * as withPostgres from "./with_postgres.mjs";
import * as withSequelize from "./with_sequelize.mjs";
import * as withTypeorm from "./with_typeorm.mjs";

const url = process.env.DATABASE_URL;

const pool = new pg.Pool({ connectionString: url });
console.log("json 1", await withPg.pay(pool, 1));
await pool.query("update orders set state = 'paid' where id = 2");
console.log("bytes 2", await withPg.publishBytes(pool, "2", Buffer.from([0x00, 0x01, 0xff])));
await pool.end();

const sql = postgres(url);
console.log("json 3", await withPostgres.pay(sql, 3));
await sql.end();

const knex = createKnex({ client: "pg", connection: url });
console.log("json 4", await withKnex.pay(knex, 4));
await knex.destroy();

const sequelize = new Sequelize(url, { logging: false });
const Message = withSequelize.defineMessage(sequelize);
console.log("json 5", await sequelize.transaction(async (transaction) => {
  await sequelize.query("update orders set state = 'paid' where id = 5", { transaction });
  return withSequelize.publish(Message, 5, transaction);
}));
await sequelize.close();

const source = await new DataSource({ type: "postgres", url, installExtensions: false, entities: [withTypeorm.Message] }).initialize();
console.log("json 6", await source.transaction(async (manager) => {
  await manager.query("update orders set state = 'paid' where id = 6");
  return withTypeorm.publish(manager, 6);
}));
await source.destroy();
