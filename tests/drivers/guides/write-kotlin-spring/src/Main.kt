package shop

import jakarta.persistence.Entity
import jakarta.persistence.Id
import jakarta.persistence.Table
import org.springframework.boot.autoconfigure.SpringBootApplication
import org.springframework.boot.runApplication
import org.springframework.data.jpa.repository.JpaRepository
import org.springframework.jdbc.core.JdbcTemplate
import org.springframework.jdbc.core.simple.SimpleJdbcInsert
import org.springframework.stereotype.Service
import org.springframework.transaction.annotation.Transactional

@Entity
@Table(name = "orders")
class Order(@Id val id: Long, var state: String)

interface Orders : JpaRepository<Order, Long>

// the page says how, without an example
@Service
class WithInsert(private val jdbc: JdbcTemplate) {
    private val insert = SimpleJdbcInsert(jdbc).withSchemaName("outbox").withTableName("message")
        .usingColumns("topic", "key", "payload").usingGeneratedKeyColumns("event_id")

    @Transactional
    fun pay(order: Long): Any {
        jdbc.update("update orders set state = 'paid' where id = ?", order)
        val row = mapOf("topic" to "orders", "key" to "$order", "payload" to """{"id": $order, "state": "paid"}""")
        return insert.executeAndReturnKeyHolder(row).keys!!["event_id"]!!
    }
}

@SpringBootApplication
class Shop

fun main() {
    runApplication<Shop>().use { context ->
        val jdbc = context.getBean(WithJdbc::class.java)
        val jpa = context.getBean(WithJpa::class.java)
        println("json 1 ${jdbc.pay(1)}")
        println("bytes 2 ${jdbc.payInBytes(2, byteArrayOf(0, 1, -1))}")
        println("json 3 ${jpa.pay(3)}")
        println("json 4 ${context.getBean(WithInsert::class.java).pay(4)}")
    }
}
