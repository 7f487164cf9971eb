import java.sql.Connection;
import java.sql.DriverManager;
import java.util.UUID;
import org.hibernate.SessionFactory;
import org.hibernate.cfg.Configuration;

public class Main {
	public static void main(String[] arguments) throws Exception {
		String url = System.getenv("JDBC_URL");
		try (Connection connection = DriverManager.getConnection(url)) {
			connection.setAutoCommit(false);
			System.out.println("json 1 " + WithJdbc.pay(connection, 1));
			connection.createStatement().executeUpdate("update orders set state = 'paid' where id = 2");
			System.out.println("bytes 2 " + WithJdbc.publishBytes(connection, "2", new byte[] {0, 1, (byte) 255}));
			connection.commit();
		}
		Configuration configuration = new Configuration().setProperty("hibernate.connection.url", url)
				.setProperty("hibernate.hbm2ddl.auto", "validate").addAnnotatedClass(Order.class).addAnnotatedClass(Message.class);
		try (SessionFactory factory = configuration.buildSessionFactory()) {
			UUID event = factory.fromTransaction(session -> WithHibernate.pay(session, 3));
			System.out.println("json 3 " + event);
		}
	}
}
