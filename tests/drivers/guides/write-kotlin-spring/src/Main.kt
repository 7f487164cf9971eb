package shop

import jakarta.persistence.Entity
import jakarta.persistence.Id
import jakarta.persistence.Table
import org.springframework.boot.autoconfigure.SpringBootApplication
import org.springframework.boot.runApplication
import org.springframework.data.jpa.repository.JpaRepository

@Entity
@Table(name = "orders")
class Order(@Id val id: Long, var state: String)

interface Orders : JpaRepository<Order, Long>

@SpringBootApplication
class Shop

fun main() {
    runApplication<Shop>().use { context ->
        val jdbc = context.getBean(WithJdbc::class.java)
        val jpa = context.getBean(WithJpa::class.java)
        println("json 1 ${jdbc.pay(1)}")
        println("bytes 2 ${jdbc.payInBytes(2, byteArrayOf(0, 1, -1))}")
        println("json 3 ${jpa.pay(3)}")
    }
}
