//! Calls the functions of docs/guide/write/rust.md, each for an order of its own.

mod with_sqlx;
mod with_tokio_postgres;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
	let url = std::env::var("DATABASE_URL")?;

	let (mut client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
	tokio::spawn(connection);
	println!("json 1 {}", with_tokio_postgres::pay(&mut client, 1).await?);
	println!("bytes 2 {}", with_tokio_postgres::pay_in_bytes(&mut client, 2, &[0, 1, 0xff]).await?);

	let pool = sqlx::PgPool::connect(&url).await?;
	println!("json 3 {}", with_sqlx::pay(&pool, 3).await?);
	Ok(())
}
