import com.rabbitmq.stream.Address;
import com.rabbitmq.stream.ByteCapacity;
import com.rabbitmq.stream.Environment;
import com.rabbitmq.stream.OffsetSpecification;
import com.rabbitmq.stream.Producer;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;

/** RabbitMQ streams with their own Java client: a log, without acknowledgement of single messages. */
final class StreamPeer extends Peer {
    private Environment environment;
    private final Map<String, Producer> producers = new HashMap<>();

    private Environment environment() {
        if (environment == null) {
            Address address = new Address("127.0.0.1", option("port", 5552));
            environment = Environment.builder().host(address.host()).port(address.port())
                .addressResolver(any -> address).build();
        }
        return environment;
    }

    @Override
    void create(List<String> topics) {
        for (String topic : topics) {
            environment().streamCreator().stream(topic).maxLengthBytes(ByteCapacity.GB(20)).create();
        }
    }

    @Override
    void open() {
        environment();
    }

    private Producer producer(String topic) {
        return producers.computeIfAbsent(topic, stream -> environment.producerBuilder().stream(stream)
            .batchSize(500)
            .maxUnconfirmedMessages(2 * option("window", 10_000))
            .enqueueTimeout(Duration.ZERO)
            .build());
    }

    @Override
    void send(String topic, byte[] body, Done done) {
        Producer producer = producer(topic);
        producer.send(producer.messageBuilder().addData(body).build(), status ->
            done.done(status.isConfirmed() ? null : new IllegalStateException("code " + status.getCode())));
    }

    @Override
    void consume(String topic, String group, Sink sink) throws Exception {
        CountDownLatch enough = new CountDownLatch(1);
        environment().consumerBuilder().stream(topic)
            .offset(OffsetSpecification.first())
            .flow().initialCredits(10).builder()
            .messageHandler((context, message) -> {
                if (enough.getCount() > 0 && !sink.took(message.getBodyAsBinary())) {
                    enough.countDown();
                }
            })
            .build();
        enough.await();
    }
}
