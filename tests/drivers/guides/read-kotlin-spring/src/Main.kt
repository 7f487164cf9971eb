package billing

import org.springframework.boot.autoconfigure.SpringBootApplication
import org.springframework.boot.runApplication

@SpringBootApplication
class Billing

fun main() {
    runApplication<Billing>()
}
