import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** RocketMQ with its own Java client: asynchronous sends one by one, or batch=64 messages a send. */
final class RocketPeer extends Peer {
    private static final long TIMEOUT_MS = 20_000;
    private DefaultMQProducer producer;
    private int batch;
    private final Semaphore batchesUnderWay = new Semaphore(256);
    private List<Message> gathered = new ArrayList<>();
    private List<Done> waiting = new ArrayList<>();

    private String names() {
        return "127.0.0.1:" + option("port", "");
    }

    @Override
    void create(List<String> topics) throws Exception {
        int queues = topics.size() > 10 ? 1 : 4;
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(names());
        admin.start();
        ExecutorService workers = Executors.newFixedThreadPool(8);
        List<Future<?>> made = new ArrayList<>();
        for (String topic : topics) {
            made.add(workers.submit(() -> {
                admin.createAndUpdateTopicConfig("127.0.0.1:" + option("broker", ""), new TopicConfig(topic, queues, queues));
                return null;
            }));
        }
        for (Future<?> one : made) {
            one.get();
        }
        workers.shutdown();
        admin.shutdown();
    }

    @Override
    void open() throws Exception {
        batch = option("batch", 1);
        producer = new DefaultMQProducer("bench");
        producer.setNamesrvAddr(names());
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.setSendMsgTimeout((int) TIMEOUT_MS);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.setMaxMessageSize(4 * 1024 * 1024);
        producer.setBackPressureForAsyncSendNum(option("window", 10_000) * 2);
        producer.start();
    }

    @Override
    void send(String topic, byte[] body, Done done) throws Exception {
        int later = option("later", 0);
        if (later > 0) {
            sendAt(topic, body, System.currentTimeMillis() + 1000L * later, done);
            return;
        }
        Message message = new Message(topic, body);
        if (batch == 1) {
            producer.send(message, callback(List.of(done), () -> {}), TIMEOUT_MS);
            return;
        }
        if (!gathered.isEmpty() && !gathered.get(0).getTopic().equals(topic)) {
            flush();
        }
        gathered.add(message);
        waiting.add(done);
        if (gathered.size() >= batch) {
            flush();
        }
    }

    /** Messages with a time go one by one: the client refuses batches of them. */
    @Override
    void sendAt(String topic, byte[] body, long epochMs, Done done) throws Exception {
        Message message = new Message(topic, body);
        message.setDeliverTimeMs(epochMs);
        producer.send(message, callback(List.of(done), () -> {}), TIMEOUT_MS);
    }

    @Override
    void flush() throws Exception {
        if (gathered.isEmpty()) {
            return;
        }
        List<Message> messages = gathered;
        SendCallback callback = callback(waiting, batchesUnderWay::release);
        gathered = new ArrayList<>(batch);
        waiting = new ArrayList<>(batch);
        batchesUnderWay.acquire();
        producer.send(messages, callback, TIMEOUT_MS);
    }

    private static SendCallback callback(List<Done> waiting, Runnable after) {
        return new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                SendStatus status = result.getSendStatus();
                answered(status == SendStatus.SEND_OK ? null : new IllegalStateException(status.toString()));
            }

            @Override
            public void onException(Throwable failure) {
                answered(failure);
            }

            private void answered(Throwable failure) {
                after.run();
                waiting.forEach(done -> done.done(failure));
            }
        };
    }

    @Override
    void sendAndWait(String topic, byte[] body) throws Exception {
        producer.send(new Message(topic, body));
    }

    @Override
    void consume(String topic, String group, Sink sink) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(names());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize(512);
        consumer.setConsumeMessageBatchMaxSize(512);
        consumer.setPullThresholdForQueue(20_000);
        consumer.setPullThresholdSizeForQueue(512);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.subscribe(topic, "*");
        CountDownLatch enough = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                if (!sink.took(message.getBody())) {
                    enough.countDown();
                    break;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        enough.await();
    }
}
