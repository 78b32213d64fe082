import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentNavigableMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.CountDownLatch;

/** RabbitMQ queues (type=classic or quorum) with publisher confirms and consumer acknowledgements. */
final class RabbitPeer extends Peer {
    private static final AMQP.BasicProperties DURABLE = new AMQP.BasicProperties.Builder().deliveryMode(2).build();
    private Channel channel;
    private final ConcurrentNavigableMap<Long, Done> waiting = new ConcurrentSkipListMap<>();

    private Channel connect() throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setHost("127.0.0.1");
        factory.setPort(option("port", 5672));
        Connection connection = factory.newConnection();
        return connection.createChannel();
    }

    @Override
    void create(List<String> topics) throws Exception {
        Channel own = connect();
        for (String topic : topics) {
            own.queueDeclare(topic, true, false, false, Map.of("x-queue-type", option("type", "classic")));
        }
        own.getConnection().close();
    }

    @Override
    void open() throws Exception {
        channel = connect();
        channel.confirmSelect();
        channel.addConfirmListener(
            (tag, multiple) -> confirmed(tag, multiple, null),
            (tag, multiple) -> confirmed(tag, multiple, new IllegalStateException("refused")));
    }

    private void confirmed(long tag, boolean multiple, Throwable failure) {
        if (!multiple) {
            waiting.remove(tag).done(failure);
            return;
        }
        ConcurrentNavigableMap<Long, Done> upToTag = waiting.headMap(tag, true);
        upToTag.values().forEach(done -> done.done(failure));
        upToTag.clear();
    }

    @Override
    void send(String topic, byte[] body, Done done) throws Exception {
        waiting.put(channel.getNextPublishSeqNo(), done);
        channel.basicPublish("", topic, DURABLE, body);
    }

    @Override
    void consume(String topic, String group, Sink sink) throws Exception {
        Channel own = connect();
        int ackEvery = latencyCounts() ? 1 : 100;
        int[] count = {0};
        CountDownLatch enough = new CountDownLatch(1);
        own.basicQos(1000);
        own.basicConsume(topic, false, (tag, delivery) -> {
            boolean more = sink.took(delivery.getBody());
            if (++count[0] % ackEvery == 0 || !more) {
                own.basicAck(delivery.getEnvelope().getDeliveryTag(), true);
            }
            if (!more) {
                enough.countDown();
            }
        }, tag -> {});
        enough.await();
    }
}
